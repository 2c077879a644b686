"""The database's clock in statements of our own, by its vendor; percent signs are doubled, as a cursor wants them."""

NOW = {"postgresql": "statement_timestamp()", "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')"}
