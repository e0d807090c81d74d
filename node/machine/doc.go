// Package machine runs pure state machines. A [Runner] queues their events, journals each step before its effects
// leave, carries the effects out, feeds the results back as events, and resumes unfinished work after a restart.
//
//	Ask, Post, timer ─▶ inbox ─▶ Step … Step ─▶ one durable write ─▶ new state ─▶ effects, answers
//	                      ▲                                                          │
//	                      └──────────────────── result events ◀── calls ◀────────────┘
//
// One turn of a machine takes all events in its inbox, reads the clock once, steps through the events, commits one
// batch, publishes the state, carries out the effects in their order and answers the callers. Events that arrive
// meanwhile wait for the next turn. So the events of one machine share a write, and the store joins the writes of many
// machines into one sync.
//
// A caller of Ask that finds the machine idle serves one turn itself. Shared workers serve the rest, and end when no
// machine has work. An idle machine has no goroutine and at most one timer. Each call has a goroutine. One mutex guards
// the queues, and no step, write or call runs under it.
//
// # Rules for machines
//
//   - Step, Next and Done block on nothing, and read no clock, randomness or network.
//   - Effects of one step are independent: one that needs the result of another comes from the event of that result.
//   - A text to be signed is journalled before it is sent to any signer.
//   - A repeated event gets the same answer, and a repeated start none: after a crash a result may come twice.
//   - A machine is Done only after its last effect is acknowledged.
//
// # Errors
//
//   - An event that Step refuses, or in which it panics, changes nothing. The caller gets the error; other events
//     continue.
//   - A full inbox refuses an asked event with [ErrBusy]. Posts are not bounded here, but by the journalled state
//     that causes them.
//   - If a write fails with no effect, as on a full disk, or the clock is not known, the state is unchanged. Callers
//     get [ErrRetry]. Posted events stay first in the inbox and are tried again each second.
//   - If a record can never be written, the events are tried in smaller batches. The one that fails alone is dropped,
//     logged and answered.
//   - If it is unknown whether a write took effect, or if a shell panics, Run returns the error. The peer is to be
//     started again, and its journal decides.
//   - A failed effect is not an error, but an event: the machine decides on a retry.
package machine
