package cluster

import (
	"path"
	"strconv"
	"strings"
)

// torchrun runs torch.distributed.run on every rank, which meet at the head. Its settings are the PET_ variables that
// torchrun reads for its flags, given to this program only: a second one in the container would collide with them.
func torchrun(t Task) Program {
	least, most := min(t.option("minNodes", t.begun()), t.begun()), max(t.option("maxNodes", t.begun()), t.begun())
	nodes := utoa(least) + ":" + utoa(most)
	host := "0"
	if t.Rank == 0 {
		host = "1"
	}
	env := map[string]string{
		"PET_NNODES":         nodes,
		"PET_NPROC_PER_NODE": utoa(t.option("processes", max(t.GPUs, 1))),
		"PET_MAX_RESTARTS":   utoa(t.option("maxRestarts", 3)),
		"PET_RDZV_BACKEND":   "c10d",
		"PET_RDZV_ENDPOINT":  Address(0).String() + ":" + strconv.Itoa(PortTorch),
		"PET_RDZV_ID":        t.ID,
		// A member that is lost is taken elsewhere within minutes, and the others wait for it.
		"PET_RDZV_CONF": "is_host=" + host +
			",join_timeout=1800,read_timeout=120,keep_alive_interval=5,keep_alive_max_attempt=6",
		"PET_LOCAL_ADDR": Address(t.Rank).String(),
	}
	return script(torchRun, env, torchArgs(t.Command)...)
}

// Debian's package has the module only, PyTorch's own the program too.
const torchRun = `if command -v torchrun >/dev/null 2>&1; then exec torchrun "$@"; fi
if command -v python3 >/dev/null 2>&1; then exec python3 -m torch.distributed.run "$@"; fi
exec python -m torch.distributed.run "$@"`

// torchArgs are torchrun's arguments for a user's command: a script, `python script`, `torchrun …` or another program.
func torchArgs(command []string) []string {
	switch name := path.Base(command[0]); {
	case name == "torchrun" && len(command) > 1:
		return command[1:]
	case (name == "python" || name == "python3") && len(command) > 1 && !strings.HasPrefix(command[1], "-"):
		return command[1:]
	case (name == "python" || name == "python3") && len(command) > 2 && command[1] == "-m":
		return command[1:]
	case strings.HasSuffix(name, ".py") || command[0] == "-m":
		return command
	}
	return append([]string{"--no-python"}, command...)
}
