package cluster

import "strconv"

// dask runs a scheduler and a worker at the head, and a worker on every other member. Clients inside find the scheduler
// by the variable that dask.distributed reads.
func dask(t Task) Program {
	scheduler := "tcp://" + Address(0).String() + ":" + strconv.Itoa(PortDask)
	env := map[string]string{
		"DASK_SCHEDULER_ADDRESS":                        scheduler,
		"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT":     "60s",
		"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP":         "120s",
		"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL":       "5 minutes",
		"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "10",
	}
	worker := []string{
		"dask", "worker", scheduler, "--host", Address(t.Rank).String(), "--name", Name(t.Rank),
		"--nworkers", utoa(t.option("workers", 1)), "--no-dashboard",
	}
	threads := t.option("threads", max(t.MilliCPU/1000/max(t.option("workers", 1), 1), 1))
	worker = append(worker, "--nthreads", utoa(threads))
	if t.MemoryMiB > 0 {
		worker = append(worker, "--memory-limit", utoa(t.MemoryMiB/max(t.option("workers", 1), 1)*9/10)+"MiB")
	}
	if t.Rank != 0 {
		return script(shellRun+again, env, worker...)
	}
	ready := &Ready{Port: PortDask}
	args := []string{strconv.Itoa(PortDask), strconv.Itoa(PortDaskDashboard), strconv.Itoa(len(worker))}
	args = append(args, worker...)
	p := script(shellRun+daskHead, env, append(args, t.Command...)...)
	p.Ready = ready
	return p
}

// The scheduler and the head's worker run beside the command; without one, the head ends with the scheduler.
const daskHead = `
port=$1; page=$2; n=$3; shift 3
i=0; worker=
while [ "$i" -lt "$n" ]; do worker="$worker $1"; shift; i=$((i+1)); done
dask scheduler --host 0.0.0.0 --port "$port" --dashboard-address "0.0.0.0:$page" & scheduler=$!
( while :; do $worker; sleep 2; done ) & beside=$!
if [ "$#" -gt 0 ]; then
  run "$@"
else
  pid=$scheduler
  [ -z "$asked" ] || kill -TERM "$pid" 2>/dev/null
  while :; do wait "$scheduler"; code=$?; kill -0 "$scheduler" 2>/dev/null || break; done
  [ -z "$asked" ] || code=0
fi
kill -TERM "$scheduler" "$beside" 2>/dev/null
exit "$code"`
