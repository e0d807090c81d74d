// Package metering runs the machines of verify/meter: the payers of a buyer's leases, or the sellers of a provider's.
//
// A lease is the key of its machine. It adds the records of a step to the journal, and is notified of each step after
// the write:
//
//	Step ─▶ machine of verify/meter ─▶ Lease.Complete ─▶ one durable write ─▶ Lease.Stepped ─▶ answer to the caller
//
// The effects that remain are returned to the caller of Step, which sends receipts and vouchers to the other side. If
// the peer ends before, the machine repeats them after the next start.
package metering
