// Package journal keeps typed records in a peer's store.
//
// A [Table] is one kind of record. Its keys are text that sorts, and its values are JSON, so that a person can read a
// journal. A [Batch] changes records of any tables in one durable step.
//
// A record belongs to one state machine. The batches of two machines have no order, so a record that both write would
// be as the slower one left it.
package journal
