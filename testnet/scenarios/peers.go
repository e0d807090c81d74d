//go:build linux

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/natlab"
)

// Port is the port of a peer at a site.
const Port = 4001

// At returns the place of a peer at a site with its name: it listens on TCP and QUIC, and reaches the chain at rpc.
func At(site *natlab.Site, name, rpc string) testnet.Place {
	return testnet.Place{
		Enter: site.Enter, RPC: rpc, Region: name,
		Listen: []string{fmt.Sprintf("/ip4/0.0.0.0/tcp/%d", Port), fmt.Sprintf("/ip4/0.0.0.0/udp/%d/quic-v1", Port)},
	}
}

// Relay makes the peer of a place a relay, and a bootstrap peer of the others.
func Relay(p testnet.Place, site *natlab.Site) testnet.Place {
	p.Config = "relay: {serve: true}"
	p.Boot = fmt.Sprintf("/ip4/%s/tcp/%d", site.Public, Port)
	return p
}

// Paid checks that the providers of an ended job claim exactly the amount of its receipts and vouchers. The providers
// in killed may have claimed less of their leases, because their time to claim passed while they were offline. A job
// ends when the buyer has its refund, so that the last claims may be pending: Paid waits for them for at most a minute,
// while unclaimed money is left. c is the job's buyer.
func Paid(ctx context.Context, net *testnet.Network, c *api.Client, id string, killed ...sign.Key) (record.Job, error) {
	var j record.Job
	var checked error
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := Until(ctx, func() (bool, string, error) {
		var err error
		if j, err = api.GetJob.Call(ctx, c, api.ByID{ID: id}); err != nil {
			return false, "", err
		}
		if checked = paid(ctx, net, c, j, killed); checked == nil {
			return true, "", nil
		}
		return j.State.Ended() && j.Held == 0, checked.Error(), nil
	})
	return j, errors.Join(err, checked)
}

// paid checks the present state for Paid.
func paid(ctx context.Context, net *testnet.Network, c *api.Client, j record.Job, killed []sign.Key) error {
	exported, err := api.JobProof.Call(ctx, c, api.OfJob{ID: j.ID, Kind: proof.KindReceipts})
	if err != nil {
		return err
	}
	p, err := exported.Receipts()
	if err != nil {
		return err
	}
	v, err := p.Verify(net.Genesis)
	if err != nil {
		return err
	}
	var lost market.Amount
	for _, l := range v.Leases {
		if slices.Contains(killed, l.Provider) {
			lost += l.Owed
		}
	}
	if !j.State.Ended() || j.Paid > j.Owed || j.Owed-j.Paid > lost || v.Owed != j.Owed || j.Paid == 0 {
		return fmt.Errorf("%s: owed %d, %d of it to killed providers, paid %d, amount of the receipts %d",
			j.Summary(), j.Owed, lost, j.Paid, v.Owed)
	}
	return nil
}
