//go:build linux

// Command cmd runs the scenario of ordinary images, with -all also the slow images, and prints its observations. It
// needs root.
package main

import (
	"context"
	"flag"

	"github.com/starling-network/starling/testnet/engine/ordinary"
	"github.com/starling-network/starling/testnet/scenarios"
)

func main() {
	var c ordinary.Choice
	flag.BoolVar(&c.All, "all", false, "run the slow images too")
	flag.StringVar(&c.Only, "only", "", "names of the images to run, separated by commas")
	flag.StringVar(&c.Templates, "templates", "", "built-in templates to run instead, separated by commas, or all")
	flag.StringVar(&c.Record, "record", "", "file to record the templates in whose smoke run passed")
	scenarios.Main("images", func(ctx context.Context, o scenarios.Options) ([]scenarios.Row, error) {
		return ordinary.Run(ctx, o, c)
	})
}
