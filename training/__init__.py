"""How the shipped models and heads were made; outside the wheel. `python -m training --help`."""
