package cluster

// AgentPath is the program by which mpirun starts its daemons on other members: rsh's arguments, and the peers as its
// way (node/runtime.AgentPath).
const AgentPath = "/run/starling/rsh"

// mpi runs the command on all members by mpirun at the head; the others hold their containers for it. The variables are
// those of Open MPI 4 (OMPI_, ORTE), Open MPI 5 (PRTE_) and of the Hydra of MPICH and Intel.
func mpi(t Task) Program {
	slots := t.option("slots", max(t.GPUs, 1))
	env := map[string]string{
		"OMPI_MCA_plm":                      "rsh",
		"OMPI_MCA_plm_rsh_agent":            AgentPath,
		"OMPI_MCA_plm_rsh_no_tree_spawn":    "1",
		"OMPI_MCA_orte_keep_fqdn_hostnames": "1",
		// It may not read other processes in a container, and the lease determines the processors.
		"OMPI_MCA_btl_vader_single_copy_mechanism": "none",
		"OMPI_MCA_btl_sm_single_copy_mechanism":    "none",
		"OMPI_MCA_smsc":                            "^cma",
		"OMPI_MCA_hwloc_base_binding_policy":       "none",
		"OMPI_MCA_btl":                             "self,vader,tcp",
		"OMPI_MCA_pml":                             "ob1",
		// Peers stop and continue all processes of a container to measure it, and mpirun forwards every SIGCONT to its
		// daemons. During their start it cannot reach them, gives up and exits with 0 without running the program.
		"OMPI_MCA_ess_base_forward_signals": "none",
		"PRTE_MCA_ess_base_forward_signals": "none",
		"OMPI_ALLOW_RUN_AS_ROOT":            "1",
		"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM":    "1",
		"PRTE_MCA_plm":                      "ssh",
		"PRTE_MCA_plm_ssh_agent":            AgentPath,
		"PRTE_MCA_plm_ssh_no_tree_spawn":    "1",
		"PRTE_ALLOW_RUN_AS_ROOT":            "1",
		"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM":    "1",
		"HYDRA_LAUNCHER":                    "ssh",
		"HYDRA_LAUNCHER_EXEC":               AgentPath,
	}
	if t.Rank != 0 {
		return script(shellRun+mpiHold, env)
	}
	return script(shellRun+mpiRun, env, append([]string{utoa(slots * t.Size)}, t.Command...)...)
}

// A member without a task holds the container for mpirun's daemon, and exits with code 0 on request.
const mpiHold = `
while [ -z "$asked" ]; do sleep 3600 & pid=$!; wait $pid; done
exit 0`

// mpirun fails at the first member that does not answer, so the script first waits for all. After five minutes mpirun
// reports the missing member.
const mpiRun = `
n=$1; shift
for host in $(cat /etc/cluster/hosts); do
  [ "$host" != "node-$NODE_RANK" ] || continue
  i=0
  while [ "$i" -lt 300 ] && [ -z "$asked" ]; do
    ` + AgentPath + ` "$host" true </dev/null >/dev/null 2>&1 && break
    sleep 1 & wait $!
    i=$((i+1))
  done
done
[ -z "$asked" ] || exit 143
if mpirun --version 2>/dev/null | grep -q 'Open MPI'
then run mpirun -np "$n" "$@"
else run mpirun -n "$n" -f /etc/cluster/hosts "$@"
fi
exit "$code"`
