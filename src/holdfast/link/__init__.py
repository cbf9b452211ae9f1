"""The network between the agents of a run's hosts and its one controller.

It carries opaque JSON objects and knows nothing of runs, ranks or decisions. Messages are
registers: the newest one holds, one that was not yet sent is replaced, and the newest is sent again
on each new connection. Both ends have an asyncio loop in a thread of their own. Their owner is
synchronous: it has a selector, watches `fileno()`, and calls `take()` when that is readable. No
call blocks on the network but `close()`, which is bounded. All methods may be called from any
thread. `server` and `dialer` import asyncio: import them where TCP is really used.

The controller's end (`holdfast.link.server`):

    server = LinkServer(
        run="lm", term=3, trust=Trust(secret=b"..."),  # Trust() is for loopback only
        addresses=("127.0.0.1",), port=0,              # 0: any free one, the same at all addresses
        hosts=8,                                       # how many are expected: heartbeats go by it
    )                                                  # ConfigurationError, in one sentence
    server.port                                        # what goes into the claim
    server.fileno()                                    # readable: there is something to take
    server.put(peer, message)                          # replaces what `peer` was not sent yet
    server.put_all(peers, message)                     # the same for many: it is written once
    news = server.take()                               # never blocks
        news.messages: dict[Peer, dict]                # the newest of each peer since the last take
        news.changes: dict[Peer, LinkChange]           # how its link stands, if that has changed
        news.refused: Refusals                         # strangers since the last take
    server.silence_s(peer) -> float | None             # since it was last heard; None: never heard
    server.round_trip_s(peer) -> float | None          # the newest measured; None: not yet
    server.close()                                     # what was put goes first, within a second

The agent's end (`holdfast.link.dialer`):

    dialer = LinkDialer(run="lm", me=Peer(4, incarnation), trust=Trust(secret=b"..."), hosts=8)
    dialer.aim(Claim(("10.0.0.1", "10.1.0.1"), 40123, term=3))  # the newest; replaced at any time
    dialer.fileno(); dialer.put(message); dialer.close()
    news = dialer.take()
        news.message: dict | None                       # the newest since the last take
        news.change: LinkChange | None                  # how the link stands, if that has changed
        news.term: int                                  # of the controller whose message it is
    dialer.round_trip_s()

`LinkChange(state, words, silence_s, connection)`: the state is

    UP        proved and connected; `connection` counts, so that a break between two looks is seen
    SILENT    still connected, but nothing has come for more than two heartbeats and SILENT_S
    DOWN      the words say why: end of file, silence, a newer connection, an error of the network
    REFUSED   (dialer only) it was reached, but proved nothing or wanted no proof of ours: another
              secret, another run, another term; or the claim's term is lower than one answered

A peer that speaks again after SILENT is UP again with the same `connection`. Neither end decides
what a silence means: suspect and lost are decided in core, by `silence_s`. The time in which this
end's own loop stood still does not count as the other's silence.
"""
