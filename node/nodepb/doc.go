// Package nodepb holds the messages that a buyer and a provider exchange about
// a lease they hold: running workloads under it, watching them, metering it.
package nodepb

// Ended reports whether this state is final.
func (s ExecState) Ended() bool {
	return s == ExecState_EXEC_STATE_EXITED || s == ExecState_EXEC_STATE_FAILED
}
