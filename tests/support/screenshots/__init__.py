"""Pictures of the console and the admin with a busy night behind them: ``python -m tests.support.screenshots``."""
