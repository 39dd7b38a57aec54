"""The formats of tables: the Arrow types of their columns, and the rows of a part."""
