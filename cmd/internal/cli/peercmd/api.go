package peercmd

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
)

func newAPI(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "api [GROUP]",
		Short: "List the routes of the local HTTP API",
		Long: `Lists the routes of the API that every peer and light client serves to its user, or the routes of one
group such as jobs. With -o json or -o yaml it prints the OpenAPI 3.1 document, which a peer serves at
/v1/openapi.json.

A peer listens on the unix socket api.sock in its directory, or on the loopback address "api" in
config.yaml. api.json in the directory has the address and the token. KEYS shows whether an API key's token
opens the route too; a key has access to its own jobs only.`,
		Example: `  starling peer api jobs
  starling peer api -o json > openapi.json
  curl --unix-socket ~/.local/share/starling/api.sock http://starling/v1/openapi.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			doc, err := api.Document()
			if err != nil {
				return err
			}
			var listed []route.Operation
			for _, o := range api.Routes() {
				if len(args) == 0 || o.Group() == args[0] {
					listed = append(listed, o)
				}
			}
			if len(listed) == 0 {
				return cli.WithHint(cli.Usagef("group %.80q: not found", args[0]),
					"`starling peer api` lists all routes")
			}
			return a.Show(json.RawMessage(doc), func(t *cli.Table) {
				t.Head("METHOD", "PATH", "QUERY", "KEYS", "SUMMARY")
				for _, o := range listed {
					keys := "no"
					if o.Access != route.Owner {
						keys = "yes"
					}
					t.Row(o.Method(), o.Path(), strings.Join(o.Parameters(), " "), keys, o.Summary)
				}
			})
		},
	}
}
