package escrow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

// TxRecord is the journal form of a transaction under way.
type TxRecord struct {
	No        uint32        `json:"no"`
	Kind      TaskKind      `json:"kind"`
	Tranche   uint16        `json:"tranche,omitzero"`
	Leaf      uint16        `json:"leaf,omitzero"`
	Amount    market.Amount `json:"amount,omitzero"`
	State     chain.TxState `json:"state"`
	LastValid uint64        `json:"last_valid"`
	Since     market.Slot   `json:"since"`
	ID        chain.TxID    `json:"id"`
	Raw       []byte        `json:"raw"` // as the chain takes it
}

// QueueRecord is the journal form of a Queue.
type QueueRecord struct {
	Next uint32     `json:"next"` // number of the next transaction
	Txs  []TxRecord `json:"txs,omitempty"`
}

// Record returns the journal form. It leaves out transactions that are being signed: they do not exist yet.
func (q Queue) Record() QueueRecord {
	r := QueueRecord{Next: q.number}
	for _, x := range q.txs {
		if x.signed() {
			r.Txs = append(r.Txs, TxRecord{
				No: x.No, Kind: x.Task.Kind, Tranche: x.Task.Tranche, Leaf: x.Task.Leaf, Amount: x.Task.Amount,
				State: x.State, LastValid: x.Prepared.LastValid, Since: x.Prepared.Since, ID: x.Prepared.ID,
				Raw: x.Prepared.Raw,
			})
		}
	}
	return r
}

// Restore returns the queue of a record. It reports false for a state that a queue cannot have, and for a task that is
// not the machine's.
func (r QueueRecord) Restore(is func(Task) bool) (q Queue, ok bool) {
	q.number = r.Next
	if len(r.Txs) > MaxTxs {
		return q, false
	}
	for _, t := range r.Txs {
		x := QueuedTx{
			No: t.No, Task: Task{Kind: t.Kind, Tranche: t.Tranche, Leaf: t.Leaf, Amount: t.Amount}, State: t.State,
			Prepared: chain.Prepared{ID: t.ID, Raw: slices.Clone(t.Raw), LastValid: t.LastValid, Since: t.Since},
		}
		if !is(x.Task) || x.State.Final() || !x.signed() || len(t.ID) > maxTxID || len(t.Raw) == 0 ||
			len(t.Raw) > chain.MaxRaw || x.No >= q.number && q.number != 0 ||
			slices.ContainsFunc(q.txs, func(y QueuedTx) bool { return y.Task == x.Task || y.No == x.No }) {
			return Queue{}, false
		}
		q.txs = append(q.txs, x)
	}
	return q, true
}

// MarshalRecord returns the journal form of a machine: JSON, and the same for the same record.
func MarshalRecord(record any) []byte {
	b, err := json.Marshal(record)
	if err != nil { // its types always have a form
		panic(fmt.Sprintf("journal form of %T: %v", record, err))
	}
	return b
}

// UnmarshalRecord reads a record of MarshalRecord. It returns market.ErrMalformed for every other text, also for one of
// the same meaning.
func UnmarshalRecord(b []byte, record any) error {
	if err := json.Unmarshal(b, record); err != nil {
		return fmt.Errorf("%w: record of %d bytes: %w", market.ErrMalformed, len(b), err)
	}
	if !bytes.Equal(MarshalRecord(record), b) {
		return fmt.Errorf("%w: record of %d bytes: not in its form", market.ErrMalformed, len(b))
	}
	return nil
}
