"""The smallest workflow: one node, so no graph.

pwf run examples/workflows/hello.py --set name=Ada
"""

import msgspec

from pwf import Context, Workflow


class Greeting(msgspec.Struct):
    name: str = "world"


flow = Workflow("hello", input=Greeting, title=lambda ctx: f"hello {ctx.input.name}")


@flow.compute
def hello(ctx: Context[Greeting]) -> str:
    return f"Hello, {ctx.input.name}!"
