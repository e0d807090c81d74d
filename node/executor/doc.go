// Package executor runs buyers' programs under leases. It does not handle prices, offers or payment.
//
// An [Execution] is one run of a workload, identified by its lease and a number. Secrets, images, devices, the network,
// files, health checks and retention are hooks. The executor itself writes the journal, holds the runtime's handle and
// calls the hooks in order:
//
//	Admit ─▶ journal ─▶ Prestart ─▶ runtime starts ─▶ journal ─▶ Poststart ─▶ running
//	                       │              │                          │           │
//	                       └──────────────┴───────── an error ───────┴─▶ Exited ◀┘ the program ended
//	                                                                        │
//	                                                            journal ─▶ Stop ─▶ … ─▶ Forget
//
// # Hooks
//
// A hook implements any of these interfaces. Hooks are called one at a time for an execution, in the order of the list
// that [New] gets or in its reverse.
//
//   - [Admission] checks a workload before anything is journalled, in order. The first error refuses it.
//   - [Prestart] prepares a resource and completes the [Launch], in order. The first error fails the execution: the
//     program is not started, and later hooks are not called.
//   - [Poststart] acts on the running program, in order. The first error destroys the program and fails the execution.
//     A hook logs a harmless failure and returns nil.
//   - [Recovery] takes over the resource of a program that outlived its peer's process, in order. It replaces Prestart
//     and Poststart in the next process.
//   - [Exit] is called at every end, in reverse order, for all hooks, even if the start failed early. It undoes
//     Prestart and Poststart, and may change the result. All are called, also after an error. The first error fails
//     an execution that has not failed yet.
//   - [Stop] releases resources that are needed after a crash before the end is journalled, such as the files from
//     which outputs are collected. It is called in reverse order for all hooks, once the end is in the journal. Errors
//     are logged.
//   - [Forgetting] removes all remaining data of an execution after its retention, in reverse order.
//
// A goroutine that a hook starts by [Execution.Go] ends with the program, before the first Exited.
//
// # Crashes
//
// The journal has no progress of hooks. Exited, Stop and Forget are idempotent, and accept executions for which
// Prestart was not called. The next process of the peer follows the record:
//
//   - No handle: the crash came before, between or after Prestart hooks. Stop is called for the attempt, and another
//     attempt begins in a new directory.
//   - A handle and no end: the runtime takes the program over, and Recovery is called. If it cannot, the execution ends
//     as lost. If the program ended meanwhile, or its end was not journalled, Exited is called, perhaps for the second
//     time.
//   - An end: Stop is called, perhaps for the second time.
//
// A peer that is stopped calls neither Exited nor Stop: its programs run on for the next process.
package executor
