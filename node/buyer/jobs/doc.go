// Package jobs decides what happens to a job: its orders, the start and stop of programs, renewals and ends of leases,
// the promised money, and its result. It is a pure state machine. Step takes the state, the time and an event, and
// returns the next state and the effects to carry out.
//
//	New ──▶ Engaging ──engaged──▶ Placing ──every rank leased──▶ Working ──round done──▶ Reducing
//	guarded    │                     │                            │  ▲  │                  │  │
//	           │                     │       rank lost, replaced ─┘  │  │                  │  │
//	           │                     │       (stays Working)         └──│──── reduced ─────┘  │
//	           │ no guardians        │ no match, queue, budget          │ last round done     │ reduce failed
//	           └─────────────────────┴──────────────▶ Stopping ◀────────┴─────────────────────┘
//	                                                     │     ◀── rank failed, stop, idle, timeouts.run, budget
//	                                                     │ nothing runs, outputs gathered
//	                                                     ▼
//	             Ended ◀── counted, released, anchored, judged ── Settling
//
//	before Ended, guarded jobs: CommandLost ──▶ silent ──▶ CommandGranted ──▶ as after a restart
//
// A rank has a durable state and a volatile activity. Activities are not journalled: after a restart Step begins them
// again from the durable state. Recovery is therefore "clear the activities, read the leases, advance".
//
//	           OrderGang       GangFormed            StartExecution         gathered, exit 0
//	Waiting ──────────────▶ · ────────────▶ Leased ─────────────────▶ Running ─────────────▶ Done ─next round─▶ Leased
//	   ▲ ▲                  │                  ▲                        │ │ └── exit 1, no restart left ──▶ Failed
//	   │ └── GangFailed ────┘                  └─ restart, generation ──┘ │ └── stopped with the job ──▶ Stopped
//	   │     (again until timeouts.queue)                                 │
//	   └──── lost: EndLease, then LeaseCost ──────────────────────────────┘
//
//	Running:  Starting ──▶ Up ──▶ Gathering ──▶ (Judging) ──▶ decided       Reclaiming: the lease ended;
//	             └──────────┴─▶ Halting ─┘                                  had the program ended before?
//
// The runner journals the state that Step returns (State.Encode) before it carries out any effect. Every effect may be
// repeated: executions are idempotent by lease and number, EndLease by chain, RenewLease because a successor is
// determined by its predecessor, and replicas by attempt. An order is not repeated: a restart voids its gang, and the
// next order of a rank has a higher epoch.
//
// Rooms always answer OrderGang (GangFormed or GangFailed), EndLease (LeaseCost for each lease of the chain) and
// RenewLease (LeaseRenewed or RenewalRefused). The eight rules below are easy to miss; each has a test.
//
//	R1  While another peer commands the job, only command events, answers of gangs and a stop request are applied.
//	R2  A gang survives CommandGranted as dropped until it is answered. Recovered forgets it.
//	R3  A renewal with its successor among the reported leases is answered; else its money would count twice.
//	R4  A repeated LeaseRenewed never ends a chain in use.
//	R5  No rank is ordered while a LeaseCost is due: the order would be too short, or refused for the budget.
//	R6  Money held by a dropped gang or an open renewal is not a used-up budget: the order waits for the answer.
//	R7  A failed scale-up restores the budget for new promises only; leases that exist keep their share.
//	R8  A reclaim that finds nothing loses the lease for its first cause; else a payment failure would read as a loss.
package jobs
