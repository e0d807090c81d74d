package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/starling-network/starling/node/client"
	"github.com/starling-network/starling/node/job"
)

// A program runs on three peers of a network that this process is no part of. One address of one peer is all that it
// needs to know.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	c, err := client.Open(ctx, client.Config{
		Home:  "my-client", // key, journal and files; made at the first use
		Peers: []string{"/dns4/entry.example/tcp/4001/p2p/12D3KooWGUxwk7hsXYs41Ch4tb6yTamW7sSDtQCJnSs65FSn9b53"},
		// Without Genesis the first use trusts that peer as to which network this is.
		Genesis: "ba2545fd7f23c922517ec5e25b394df0ea08a0b34715f220c0ea0f40bea114ee",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if c.Created() {
		fmt.Println("fund this wallet and come back:", c.Wallet())
		return
	}
	j, err := c.Run(ctx, job.Job{
		Name: "hello", Runtime: "wasm", Module: "hello.wasm", Count: 3,
		Resources: job.Resources{Class: "cpu", Units: 1},
		Restart:   job.Restart{Max: 2},
		Timeouts:  job.Timeouts{Queue: time.Minute, Run: 10 * time.Minute},
		Payment:   job.Payment{MaxPrice: 500_000, Budget: 1_000_000, Decimals: c.Genesis().Decimals},
	})
	if err != nil {
		log.Fatal(err) // when ctx ended before the job did, the next client.Open on this home goes on with it
	}
	for rank := range j.Ranks {
		if err := c.Logs(ctx, j.ID, rank, false, os.Stdout, os.Stderr); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(j.Summary(), "for", c.Genesis().FormatAmount(j.Owed))
}
