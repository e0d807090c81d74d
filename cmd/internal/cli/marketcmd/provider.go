package marketcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
)

// drainEvery is the interval at which a drain polls the number of leases.
const drainEvery = time.Second

// NewProvider makes the command `starling provider`.
func NewProvider(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupPeer, &cobra.Command{
		Use:        "provider",
		SuggestFor: []string{"offer"},
		Short:      "Sell units: prices, pause, drain, leases, GPUs",
		Long: `Shows and changes the offers of this peer. They are set under provide in config.yaml; pauses, drains
and prices set here survive a restart. No command here ends a running lease.

Images of jobs without GPUs run unchanged, with their USER and a writable root, if the peer runs as root and the
engine's daemon.json names starling-guard, a program beside starling:

  {"runtimes": {"starling": {"path": "/usr/local/bin/starling-guard", "runtimeArgs": ["oci-runtime"]}}}

Otherwise a program has a user without privileges and a read-only root.`,
		Example: `  starling provider status
  starling provider price cpu 0.08
  starling provider drain --wait && sudo reboot`,
	}, newOfferLs(a), newOfferPause(a), newOfferResume(a), newOfferDrain(a), newOfferPrice(a), newLeases(a),
		newGpus(a), newGuarded(a))
}

func newOfferLs(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:   "status",
		Short: "Show the offers of this peer, class by class",
		Long: `Lists the offers of this peer. STATE is selling; paused and draining (no new lease until "provider
resume"); drained (draining, and no lease is left); closed (outside provide.hours); or no fees (the peer's key has too
little SOL to claim earnings). Units withdrawn because of a fault are listed with the reason; "provider resume DEVICE"
sells them again. On a network with audits, PROVEN is the number of free units with a fresh audit record ("starling
proof audit"); the others serve only orders with --unproven. Some classes cannot be distinguished by audits ("starling
proof floors"). Their units are proven and sold as their family: for class gpu, not for gpu/l40s.`,
		Example: `  starling provider status
  starling provider status -o json`,
	}, 0, cli.Get(api.GetOwnOffers), ownOffers)
}

func ownOffers(t *cli.Table, p cli.Peer, o api.OwnOffers) { ownOffersTable(t, p.Genesis, o) }

func newOfferPause(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:   "pause",
		Short: "Refuse new orders; running leases continue",
		Long: `Withdraws the offers of this peer and refuses new orders. Running leases continue and are paid. The
pause lasts until "provider resume", also across restarts of the peer.`,
		Example: `  starling provider pause`,
	}, 0, cli.Get(api.PauseOffers), ownOffers)
}

func newOfferResume(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "resume [DEVICE...]",
		Short: "Sell again after a pause, a drain or a withdrawal",
		Long: `Without arguments it ends a pause or a drain. With serial numbers or UUIDs it sells devices again that
were withdrawn because of a fault; a device that still has the fault is withdrawn again.`,
		Example: `  starling provider resume
  starling provider resume GPU-5a1b0c1e-2d3f-4a5b-8c6d-7e8f9a0b1c2d`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return offers(a, func(client *api.Client) (api.OwnOffers, error) {
				return api.ResumeOffers.Call(c.Context(), client, api.ResumeRequest{Devices: args})
			})
		},
	}
}

func newOfferDrain(a *cli.App) *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use:   "drain",
		Short: "Refuse new orders, to stop the peer after its last lease",
		Long: `Pauses the peer as "provider pause" does. With --wait it waits until the last lease has ended and reports
that the peer can be stopped. An interrupt ends only the wait; "provider resume" sells again.`,
		Example: `  starling provider drain --wait && sudo reboot`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			o, err := api.DrainOffers.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			if wait {
				if o, err = drained(a, c.Context(), client, o); err != nil {
					return err
				}
			}
			return showOffers(a, o)
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until no lease is left")
	return c
}

// drained waits until no lease is left. It reports the number of leases on each change.
func drained(a *cli.App, ctx context.Context, client *api.Client, o api.OwnOffers) (api.OwnOffers, error) {
	last := -1
	for {
		if o.State != "draining" && o.State != "drained" {
			return o, fmt.Errorf("the peer is %s: the drain was ended", o.State)
		}
		if o.Leases == 0 {
			a.Say("no lease is left: the peer can be stopped")
			return o, nil
		}
		if o.Leases != last {
			last = o.Leases
			a.Say("%s left", leasesText(o.Leases))
		}
		select {
		case <-ctx.Done():
			return o, ctx.Err()
		case <-time.After(drainEvery):
		}
		next, err := api.GetOwnOffers.Call(ctx, client, api.None{})
		if err != nil {
			return o, err
		}
		o = next
	}
}

func newOfferPrice(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "price CLASS PRICE",
		Short: "Change the price of a class, per unit-hour",
		Long: `Changes the price of a class for future orders; leases keep their price. The least price is
provide.floor. The new price lasts, also across restarts of the peer, until the configuration sets another price.`,
		Example: `  starling provider price cpu 0.08
  starling provider price gpu/h100 2.50`,
		Args: cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			class := market.Class(args[0])
			if err := class.Check(); err != nil {
				return cli.Usagef("%v", err)
			}
			g, err := a.Genesis()
			if err != nil {
				return err
			}
			price, err := market.ParseDecimal(args[1], g.Decimals)
			if err != nil {
				return cli.Usagef("price: %v", err)
			}
			return offers(a, func(client *api.Client) (api.OwnOffers, error) {
				return api.PriceOffer.Call(c.Context(), client, api.PriceRequest{Class: class,
					Price: market.Price(price)})
			})
		},
	}
}

// offers changes the peer's own offers and shows them.
func offers(a *cli.App, do func(*api.Client) (api.OwnOffers, error)) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	o, err := do(client)
	if err != nil {
		return err
	}
	return showOffers(a, o)
}

func showOffers(a *cli.App, o api.OwnOffers) error {
	g, err := a.Genesis()
	if err != nil {
		return err
	}
	return a.Show(o, func(t *cli.Table) { ownOffersTable(t, g, o) })
}

func leasesText(n int) string {
	if n == 1 {
		return "1 lease"
	}
	return fmt.Sprintf("%d leases", n)
}

func ownOffersTable(t *cli.Table, g market.Genesis, o api.OwnOffers) {
	t.Row("state", o.State)
	if o.Reason != "" {
		t.Row("", o.Reason+"; send SOL to the peer's key (starling peer status)")
	}
	hours := o.Hours
	if !o.Until.IsZero() {
		change := "closes"
		if o.State == "closed" {
			change = "opens"
		}
		hours += fmt.Sprintf(", %s in %s", change, cli.Span(time.Until(o.Until)))
	}
	t.Row("hours", hours)
	t.Row("leases", o.Leases)
	t.Row()
	head := []any{"CLASS", "MODEL", "UNITS", "FREE", "LEASED", "WITHDRAWN", "EACH", "PRICE/UNIT-HOUR", "FLOOR",
		"RUNTIMES", "OFFER"}
	if g.AuditSlots > 0 {
		head = append(head, "PROVEN")
	}
	t.Row(head...)
	for _, l := range o.Offers {
		floor, seq := "-", "-"
		if l.Floor > 0 {
			floor = g.FormatAmount(market.Amount(l.Floor))
		}
		if l.Seq > 0 {
			seq = fmt.Sprint(l.Seq)
		}
		row := []any{l.Class, modelText(l.Model, l.Simulated), l.Units, l.Free, l.Leased, l.Withdrawn,
			unitSize(l.PerUnit),
			g.FormatAmount(market.Amount(l.Price)), floor, strings.Join(l.Runtimes, ","), seq}
		if g.AuditSlots > 0 {
			row = append(row, fmt.Sprint(l.Proven)+provenAs(l.Class))
		}
		t.Row(row...)
	}
	if len(o.Withdrawn) == 0 {
		return
	}
	t.Row()
	t.Row("WITHDRAWN", "CLASS", "MODEL", "LEASED", "REASON")
	for _, u := range o.Withdrawn {
		leased := "no"
		if u.Leased {
			leased = "yes"
		}
		t.Row(u.Serial, u.Class, u.Model, leased, u.Reason)
	}
}
