package reputation

import (
	"context"

	"github.com/starling-network/starling/verify/reputation"
)

// Write brings the journal up to date, as Run does.
func (b *Book) Write(ctx context.Context) bool { return b.write(ctx) }

// RecordOf records an audit that another peer judged.
func (b *Book) RecordOf(f reputation.Fact, src Source) { b.recordOf(f, src) }
