"""The network between the agents of a run's hosts and its one controller.

It carries JSON objects of bounded size, and knows nothing of runs or decisions. What either end
says is a register: the newest message holds. One that was not sent yet is replaced, and the newest
is sent again on each new connection.

    frames     bytes to frames, and JSON objects in them
    handshake  both ends prove that they know the run's secret; every frame is proved after that
    secret     the file that the secret is read from
    server     the controller's end
    dialer     an agent's end
"""
