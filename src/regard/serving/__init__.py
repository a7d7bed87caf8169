"""What servers share: limits on requests, refusals, a queue of work, sockets; and the server of translations."""
