// Command build compiles the on-chain program and writes it beside its source: starling.so, its SHA-256, and the
// versions of its compiler.
//
//	go run ./chain/program/build             from anywhere in the tree: writes the committed files
//	go run ./chain/program/build -v3 FILE    the same program in the newer format, elsewhere
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/starling-network/starling/chain/program/sbpf"
	"github.com/starling-network/starling/chain/program/toolchain"
)

func main() {
	v3 := flag.String("v3", "", "write sBPF v3 to this file instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *v3); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, v3 string) error {
	t, err := toolchain.Find(ctx)
	if err != nil {
		return err
	}
	crate, err := toolchain.Crate(ctx)
	if err != nil {
		return err
	}
	if v3 != "" {
		so, err := t.Build(ctx, crate, sbpf.V3)
		if err != nil {
			return err
		}
		return os.WriteFile(v3, so, 0o644)
	}
	so, err := t.Build(ctx, crate, sbpf.V0)
	if err != nil {
		return err
	}
	if err := t.Write(crate, so); err != nil {
		return err
	}
	fmt.Printf("starling.so: %d bytes, by %s\n", len(so), t.Version())
	return nil
}
