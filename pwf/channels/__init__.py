"""The processes that show messages outside and bring answers back: one adapter a file, behind one port."""
