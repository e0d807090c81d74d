package house

import (
	"fmt"
	"go/token"
	"strings"
)

// Area is a folder with the imports allowed in it. The most specific area of a folder applies.
type Area struct {
	Folder string
	Ours   []string // allowed folders of this module, besides itself
	Others []string // allowed prefixes of other modules; nil allows any
	Why    string
}

// Areas is the import order. A change here is a deliberate change of the design, with a reason.
var Areas = []Area{
	{
		Folder: "cmd", Ours: []string{"node", "p2p", "market", "verify", "chain"},
		Why: "the command line stands on top of the peer and knows nothing of the testnet's insides",
	},
	{
		Folder: "cmd/internal/cli", Ours: []string{"node", "p2p", "market", "verify", "chain", "testnet"},
		Why: "the command `starling testnet` is the one door from the binary to the testnet",
	},
	{
		Folder: "node", Ours: []string{"p2p", "market", "verify", "chain"},
		Why: "node composes the peer: it is the only place where the network and the cores meet",
	},
	{
		Folder: "p2p", Others: []string{
			"github.com/libp2p/", "github.com/multiformats/", "github.com/ipfs/", "google.golang.org/protobuf/",
			"github.com/marcopolo/simnet", "github.com/mr-tron/base58", "github.com/prometheus/client_golang/",
			"github.com/quic-go/quic-go", "go.uber.org/fx", "golang.org/x/", "golang.zx2c4.com/wireguard/",
			"gvisor.dev/gvisor/",
		},
		Why: "p2p is generic: another project could take it as it is, and it can be tested without any of our meaning",
	},
	{
		Folder: "market", Others: pureOthers,
		Why: "market is a core: standard library and protobuf only, " +
			"so that its rules can be tested, replayed and read without a network",
	},
	{
		Folder: "verify", Ours: []string{"market"}, Others: pureOthers,
		Why: "verify stands on market alone: anyone must be able to check a receipt offline",
	},

	{
		Folder: "chain", Ours: []string{"market", "verify"}, Others: pureOthers,
		Why: "the settlement machine is a core; only chain/solana knows Solana",
	},
	{
		Folder: "chain/chaintest", Ours: []string{"chain", "market", "verify"}, Others: pureOthers,
		Why: "the ledger's contract must not depend on one chain",
	},
	{
		Folder: "chain/solana", Ours: []string{"chain", "market", "verify"},
		Why: "chain/solana is an implementation of chain.Ledger and nothing more",
	},
	{
		Folder: "testnet", Ours: []string{"node", "p2p", "market", "verify", "chain", "cmd"},
		Why: "the testnet drives everything, and nothing depends on it",
	},
}

var pureOthers = []string{"google.golang.org/protobuf/", "github.com/mr-tron/base58", "filippo.io/edwards25519"}

// testOthers may be used by any test and by the test-support packages (named *test).
var testOthers = []string{
	"pgregory.net/rapid", "github.com/cockroachdb/datadriven", "github.com/rogpeppe/go-internal/",
	"golang.org/x/crypto/",
}

// onlyBelow lists modules that only one folder may import, with the reason.
var onlyBelow = []struct{ module, folder, why string }{
	{"github.com/gagliardetto/",
		"chain/solana",
		"one folder knows Solana's client library; the rest speaks chain.Ledger, so that the library can be replaced"},
	{"github.com/tetratelabs/wazero", "node/runtime", "engines stand behind runtime.Runtime"},
	{"github.com/NVIDIA/go-nvml", "node/gpu",
		"it needs cgo and a driver's crash is its caller's: only the helper process links it, behind gpu.Source"},
	{"github.com/ebitengine/purego", "node/device/cuda/driver",
		"what links it is no longer static: only the program starling-cuda is, and a driver's crash is its alone"},
	{Module + "/node/device/cuda/driver", "cmd/starling-cuda",
		"as purego: only the program starling-cuda calls the driver; the peer starts it and does not link it"},
	{"github.com/docker/",
		"node/runtime/docker",
		"the engine stands behind runtime.Runtime; its client library is frozen and will be replaced by another"},
	{"gvisor.dev/gvisor",
		"p2p/overlay", "one folder knows the TCP/IP stack in user space: what leaves an overlay ends there"},
	{"modernc.org/sqlite", "node/store", "the database stands behind store.Store"},
	{"github.com/minio/", "node/files/s3/objects", "one folder knows the client library of S3"},
	{Module + "/node/files/s3/objects", "cmd/internal/cli",
		"the buyer's client signs URLs with the user's keys: peers and providers have no keys, and need no library"},
}

// CheckImports checks the import order of the files and returns one sentence per breach. Test files are exempt, but
// they too may use Solana's library only in its folder.
func CheckImports(files []File) []string {
	var breaches []string
	for _, f := range files {
		area, found := areaOf(f.Dir)
		f.Imports(func(p, _ string, pos token.Pos) {
			for _, only := range onlyBelow {
				if strings.HasPrefix(p, only.module) && !Within(f.Dir, only.folder) {
					breaches = append(breaches, fmt.Sprintf("%s imports %s, which belongs below %s: %s",
						f.At(pos), p, only.folder, only.why))
				}
			}
			if f.Test || !found {
				return
			}
			if reason := area.refuses(f.Dir, p); reason != "" {
				breaches = append(breaches, fmt.Sprintf("%s imports %s: %s", f.At(pos), p, reason))
			}
		})
	}
	return breaches
}

func areaOf(dir string) (Area, bool) {
	var best Area
	for _, a := range Areas {
		if Within(dir, a.Folder) && len(a.Folder) > len(best.Folder) {
			best = a
		}
	}
	return best, best.Folder != ""
}

// refuses returns the reason why code in dir may not import p, or "".
func (a Area) refuses(dir, p string) string {
	if ours, isOurs := strings.CutPrefix(p, Module+"/"); isOurs {
		top, _, _ := strings.Cut(a.Folder, "/")
		if Within(ours, top) {
			// Within a top-level folder only chain has an import order: the core does not import its implementations.
			if top == "chain" && a.Folder == "chain" &&
				(Within(ours, "chain/solana") || Within(ours, "chain/chaintest")) {
				return a.Why
			}
			return ""
		}
		for _, ok := range a.Ours {
			if Within(ours, ok) {
				return ""
			}
		}
		return a.Why
	}
	first, _, _ := strings.Cut(p, "/")
	if !strings.Contains(first, ".") || a.Others == nil {
		return "" // the standard library, or an area without restrictions
	}
	allowed := a.Others
	if strings.HasSuffix(dir, "test") {
		allowed = append(append([]string{}, allowed...), testOthers...)
	}
	for _, ok := range allowed {
		if strings.HasPrefix(p, ok) {
			return ""
		}
	}
	return a.Why
}
