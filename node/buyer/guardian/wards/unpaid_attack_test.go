package wards

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/store"
)

var errNotThere = errors.New("the wage is not on chain")

// TestAttackGuardiansUnpaid: engagements whose wages are not on chain have half of a guardian's places, and not for
// longer than an hour, also if it restarts.
func TestAttackGuardiansUnpaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, members := guardiantest.CharterOf(t, 3, 2)
		disk := store.NewMemory()
		start := func() (*Service, func()) {
			return running(t, guardiantest.Network, base, disk, func(s *Service) {
				s.cfg.Policy.MaxJobs = 16
				s.cfg.Backed = func(context.Context, Ward, []byte) error { return errNotThere }
			})
		}
		s, stop := start()
		engage := func(i int) error {
			c := base
			c.Owner, c.Job = guardiantest.Named(fmt.Sprint("owner", i)).Key(), sign.Sum([]byte(fmt.Sprint("job", i)))
			guardiantest.Pay(c, members)
			req := engaging(t, guardiantest.Network, c, members)
			req.GetEngage().UntilMillis += uint64((50 * time.Minute).Milliseconds())
			_, err := s.Answer(t.Context(), c.Owner, req)
			return err
		}
		for i := range 8 {
			guardiantest.Must(t, engage(i))
		}
		if err := engage(8); !guardian.Refused(err, guardian.CodeFull) {
			t.Errorf("the ninth of 16: %v", err)
		}
		time.Sleep(30 * time.Minute)
		stop()
		s, _ = start()
		if err := engage(9); !guardian.Refused(err, guardian.CodeFull) {
			t.Errorf("after a restart: %v", err)
		}
		time.Sleep(31 * time.Minute)
		if n := len(s.all()); n != 0 {
			t.Errorf("an hour later %d are guarded still", n)
		}
	})
}
