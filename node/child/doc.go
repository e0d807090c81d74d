// Package child runs programs of ours that the peer starts beside itself because what they call, a driver, can end or hang the
// process that calls it.
//
//	peer ── Call ──▶ Program ── request on standard input ──▶ process
//	                    │    ◀── answer on standard output ──
//	                    └ started when first asked; ended when it hangs, answers nonsense or nobody waits for its answer;
//	                      started again when asked again, later each time; never beside one that a kill does not reach
//
// What requests and answers look like is the caller's: Config.Read reads one answer, bounded, and Question.Answer takes it.
package child
