// Package child runs helper programs that call a driver, since a driver can end or hang its caller.
//
//	peer ── Call ──▶ Program ── request on standard input ──▶ process
//	                    │    ◀── answer on standard output ──
//	                    └ started at the first request; ended if it hangs, sends an invalid answer, or its caller is
//	                      gone; restarted at the next request, after growing delays; never started while a killed
//	                      process still hangs in the driver
//
// The caller defines requests and answers: Config.Read reads one answer, bounded, and Question.Answer takes it.
package child
