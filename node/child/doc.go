// Package child runs helper programs that call a driver, since a driver can end or hang its caller.
//
//	peer ── Call ──▶ Program ── request on standard input ──▶ process
//	                    │    ◀── answer on standard output ──
//	                    └ started when first asked; ended when it hangs, answers nonsense or nobody waits for its
//	                      answer; started again when asked again, later each time; never beside one that a kill does
//	                      not reach
//
// The caller defines requests and answers: Config.Read reads one answer, bounded, and Question.Answer takes it.
package child
