// Package gauge is the program that computes probes (verify/exclusive) with a processor inside an execution's sandbox,
// and how a peer speaks to it over its standard input and output:
//
//	peer                                      gauge
//	                        ◀──────────────── "ready\n", once it has computed something
//	seed[32] ‖ shape[16]    ────────────────▶
//	                        ◀──────────────── n u32 ‖ n × SHA-256 of a tile
//	… as often as it likes, and closes the input at the end
//
// The program of the buyer may lie in the same sandbox, so nothing of an answer is believed.
package gauge
