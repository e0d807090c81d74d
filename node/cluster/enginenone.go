package cluster

// none runs the command on every rank, or the image as it is, one process each. Its use of the contract is its own.
func none(t Task) Program {
	return Program{Entrypoint: t.Command, Env: map[string]string{
		"RANK": utoa(t.Rank), "WORLD_SIZE": utoa(t.Size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
	}}
}
