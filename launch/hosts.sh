#!/usr/bin/env bash
# Trains a recipe on several hosts that are reachable by ssh, started on one of them or elsewhere:
#
#   launch/hosts.sh "a:8,b:8" recipe.yaml [--set group.key=value ...]
#
# Each host needs tessera and tsrun under the same path, this folder (or a copy of it) and the data under the same path.
# If a worker fails, all are stopped and restarted from the newest checkpoint, at most three times. Without ssh, run this
# command on each host, with k = 0, 1, ...:
#
#   tsrun --worker_num 16 --local_worker_num 8 --node_rank k --master_addr a tessera train recipe.yaml
set -euo pipefail
if (($# < 2)); then
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"
  exit 2
fi
hosts=$1
shift
exec tsrun --hosts "$hosts" --max_restarts 3 tessera train "$@"
