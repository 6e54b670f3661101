"""Operations on notices: the list that `pwf inbox` shows.

Holds no state.
"""

from __future__ import annotations

from pwf.actors.operations.services import Answer, Asked, OperationHandler, Services
from pwf.protocol.notices import NoticeListPayload
from pwf.store.notices import notice_list


async def list_notices(services: Services, asked: Asked[NoticeListPayload]) -> Answer:
    """`notice.list`."""
    return Answer(await services.store.read(notice_list, asked.payload))


HANDLERS: dict[str, OperationHandler] = {"notice.list": list_notices}
