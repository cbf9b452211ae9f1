#!/usr/bin/env bash
# Usage: bare_loop.sh RANKS COMMAND... : `while ! COMMAND; do sleep 1; done` for several ranks.
# The first rank that ends takes the others with it, at once: they wait for it in a collective, and
# some for minutes. SIGTERM goes to the ranks; what they save then is awaited, and the loop ends.
ranks=$1
shift
stopped=
trap 'stopped=1; kill -TERM "${pids[@]}" 2>/dev/null' TERM
port=$((20000 + $$ % 10000))

while :; do
  pids=()
  port=$((port + 1)) # a new one each time: nobody waits for the old one to be free
  for ((rank = 0; rank < ranks; rank++)); do
    RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      JAX_PROCESS_ID=$rank JAX_NUM_PROCESSES=$ranks JAX_COORDINATOR_ADDRESS=127.0.0.1:$port \
      "$@" &
    pids+=($!)
  done
  ok=0
  for ((left = ranks; left > 0; left--)); do
    wait -n "${pids[@]}"
    code=$?
    while [ -n "$stopped" ] && kill -0 "${pids[@]}" 2>/dev/null; do wait; done
    if [ $code = 0 ]; then
      ok=$((ok + 1))
    else
      [ -n "$stopped" ] || kill -KILL "${pids[@]}" 2>/dev/null
      wait
      break
    fi
  done
  [ -n "$stopped" ] && exit 75
  [ $ok = "$ranks" ] && exit 0
  sleep 1
done
