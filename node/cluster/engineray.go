package cluster

import (
	"fmt"
	"strconv"
	"time"
)

// ray runs unmodified Ray: the head keeps the control store, the dashboard and a worker, the others join and join
// again. Tokens (since Ray 2.52, ray-security/token-auth) keep out every client without one, even from inside the
// network; the options are those of `ray start`, the variables those of ray_config_def.h.
func ray(t Task) Program {
	address := Address(0).String() + ":" + strconv.Itoa(PortRay)
	env := map[string]string{
		"RAY_ADDRESS":             address,
		"RAY_API_SERVER_ADDRESS":  "http://" + Address(0).String() + ":" + strconv.Itoa(PortRayDashboard),
		"RAY_AUTH_MODE":           "token",
		"RAY_AUTH_TOKEN_PATH":     secretsDir + "/" + TokenFile,
		"RAY_USAGE_STATS_ENABLED": "0",
		// Starling confines the containers: Ray's warnings about them do not apply.
		"RAY_DISABLE_DOCKER_CPU_WARNING": "1",
		// A provider's machine has other work: Ray's processes wait longer for each other.
		"RAY_raylet_start_wait_time_s":         "900",
		"RAY_agent_register_timeout_ms":        "900000",
		"RAY_gcs_rpc_server_connect_timeout_s": "30",
		"RAY_DASHBOARD_STARTUP_TIMEOUT_S":      "900", // or the head gives up its start
		// The dashboard starts eight processes at once. If one takes longer, it hangs instead of ending.
		"RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "600",
	}
	for name, value := range rayTimes(t.rtt()) {
		env[name] = value
	}
	start := []string{
		"ray", "start", "--node-ip-address=" + Address(t.Rank).String(), "--num-gpus=" + utoa(t.GPUs),
		"--disable-usage-stats", "--node-name=" + Name(t.Rank),
	}
	if cpus := t.MilliCPU / 1000; t.MilliCPU > 0 {
		start = append(start, "--num-cpus="+utoa(max(cpus, 1)))
	}
	if t.MemoryMiB > 0 {
		// A third of the memory, as Ray itself takes of a machine's, which it does not see in a container; shared
		// memory is half of it.
		store := min(t.option("objectStore", max(t.MemoryMiB*3/10, 80)), t.MemoryMiB/2)
		start = append(start, "--object-store-memory="+strconv.FormatUint(uint64(max(store, 80))<<20, 10))
	} else if n := t.option("objectStore", 0); n > 0 {
		start = append(start, "--object-store-memory="+strconv.FormatUint(uint64(n)<<20, 10))
	}
	if t.Rank != 0 {
		start = append(start, "--address="+address, "--block")
		return token(script(shellRun+again, env, start...), nil)
	}
	start = append(start, "--head", "--port="+strconv.Itoa(PortRay),
		"--include-dashboard=true", "--dashboard-host=0.0.0.0",
		"--dashboard-port="+strconv.Itoa(PortRayDashboard), "--ray-client-server-port="+strconv.Itoa(PortRayClient))
	ready := &Ready{Port: PortRayDashboard, Path: "/api/gcs_healthz"}
	if len(t.Command) == 0 {
		return token(script(shellRun+rayHead, env, append(start, "--block")...), ready)
	}
	args := append([]string{utoa(t.Size), strconv.Itoa(len(start))}, start...)
	return token(script(shellRun+rayCommand, env, append(args, t.Command...)...), ready)
}

// secretsDir is where a container finds its secrets (node/runtime.SecretsDir).
const secretsDir = "/run/secrets"

func token(p Program, ready *Ready) Program {
	p.Token, p.Ready = true, ready
	return p
}

// rayTimes are the time-outs of a cluster: Ray's own are for one data centre. A node is dead after period (3 s) +
// timeout, several times in a row, or after as many periods in which its port is closed.
func rayTimes(rtt time.Duration) map[string]string {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	// "If your cluster has a high latency, make it to > 4x the latency": this is also the timeout of connecting.
	env := map[string]string{"RAY_gcs_grpc_min_reconnect_backoff_ms": ms(max(time.Second, 5*rtt))}
	// A lost machine does not even close its connections. Ray retries its tasks after an unanswered ping. Ray's default
	// pings are five minutes apart with a timeout of two, and its servers allow one a minute.
	env["RAY_grpc_client_keepalive_time_ms"] = ms(65 * time.Second)
	env["RAY_grpc_client_keepalive_timeout_ms"] = ms(20*time.Second + 10*rtt)
	// A node on a machine that is busy for half a minute is not lost.
	env["RAY_health_check_failure_threshold"] = "10"
	env["RAY_health_check_timeout_ms"] = ms(5 * time.Second)
	if rtt <= 5*time.Millisecond {
		return env
	}
	env["RAY_gcs_grpc_max_reconnect_backoff_ms"] = ms(max(5*time.Second, 10*rtt))
	env["RAY_health_check_timeout_ms"] = ms(30 * time.Second)
	env["RAY_gcs_rpc_server_reconnect_timeout_s"] = "300"
	env["RAY_raylet_client_num_connect_attempts"] = "20"
	return env
}

// rise runs `ray start`, and retries it for ten minutes if Ray times out during its start, as it does after 30 s on a
// busy machine. It stops after three failures of another kind.
const rise = `
rise() {
  other=0; end=$(($(date +%s) + 600))
  while :; do
    began=$(date +%s)
    run "$@"
    [ -z "$asked" ] && [ "$code" -ne 0 ] && [ ! -e "${RAY_TMPDIR:-${TMPDIR:-/tmp}}/ray/ray_current_cluster" ] || return
    now=$(date +%s)
    [ $((now - began)) -ge 30 ] || other=$((other + 1))
    [ "$other" -lt 3 ] && [ "$now" -lt "$end" ] || return
    ray stop --force >/dev/null 2>&1
  done
}
`

// A head ends with Ray; asked to end, it ends well.
const rayHead = rise + `rise "$@"; [ -z "$asked" ] || exit 0; exit "$code"`

// The command sees all members, or the members present after five minutes.
var rayCommand = rise + fmt.Sprintf(`
size=$1; n=$2; shift 2
i=0; start=
while [ "$i" -lt "$n" ]; do start="$start $1"; shift; i=$((i+1)); done
rise $start
[ -z "$asked" ] || exit 143
[ "$code" -eq 0 ] || exit 1
i=0
while [ "$i" -lt %d ] && [ -z "$asked" ]; do
  [ "$(ray status 2>/dev/null | grep -c ' node_')" -lt "$size" ] || break
  sleep 1 & wait $!
  i=$((i+1))
done
[ -z "$asked" ] || exit 143
run "$@"
ray stop --grace-period 5 >/dev/null 2>&1
exit "$code"`, rayWait)

// rayWait is how often the members are counted, a second apart and the counting not included.
const rayWait = 100
