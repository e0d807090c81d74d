// Package executor runs buyers' programs under leases. It knows nothing of prices, offers or payment.
//
// An [Execution] is one run of a workload, named by its lease and a number. Everything around a program is a hook:
// secrets, images, devices, the network, files, health checks, retention. The executor itself keeps the journal, the
// runtime's handle and the order of the hooks:
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
//     A hook with a failure that is harmless logs it and returns nil.
//   - [Recovery] takes up the resource of a program that outlived its peer's process, in order. It replaces Prestart
//     and Poststart in the next process.
//   - [Exit] is called at every end, in reverse order, for all hooks, however far the start came: it undoes Prestart
//     and Poststart, and may change the result. All are called, also after an error. The first error fails an
//     execution that has not failed yet.
//   - [Stop] releases whatever a crash before the journal's record of the end would need again, such as the files from
//     which outputs are collected. It is called in reverse order for all hooks, once the end is in the journal. Errors
//     are logged.
//   - [Forgetting] removes everything that is left of an execution when its retention is over, in reverse order.
//
// A goroutine that a hook starts by [Execution.Go] ends with the program, before the first Exited.
//
// # Crashes
//
// The journal has no progress of hooks. Exited, Stop and Forget are idempotent, and accept executions for which
// Prestart was not called. The next process of the peer goes by the record:
//
//   - No handle: the crash came before, between or after Prestart hooks. Stop is called for the attempt, and another
//     one begins in a directory of its own.
//   - A handle and no end: the runtime takes the program over, and Recovery is called. If it cannot, the execution ends
//     as lost. If the program ended meanwhile, or its end was not journalled, Exited is called, perhaps for the second
//     time.
//   - An end: Stop is called, perhaps for the second time.
//
// A peer that is stopped calls no Exited and no Stop: its programs go on for the next process.
package executor
