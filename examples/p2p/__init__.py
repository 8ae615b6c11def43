"""A federation without a server and without a coordinator: processes that train, exchange models
and signed reports over TCP on this machine, and each trace who contributed what."""
