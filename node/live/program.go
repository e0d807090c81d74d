package live

// Program is one more program to run beside a rank's own, in its sandbox.
type Program struct {
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`     // on top of the rank's own
	WorkDir string            `json:"workDir,omitempty"` // empty: the rank's own
	TTY     bool              `json:"tty,omitempty"`     // a terminal of Rows and Cols
	Rows    uint16            `json:"rows,omitempty"`
	Cols    uint16            `json:"cols,omitempty"`
}
