// Package web reads files of the web on behalf of strangers: the inputs that jobs name by their URLs.
//
// A buyer chooses the URL, and its server is untrusted. The address of every socket is therefore checked after names
// are resolved:
//
//	URL ──▶ server ──▶ redirects, at most 5 ──▶ bytes ──▶ digest ──▶ store of blobs
//	└──────────── one transport ────────────┘   (Client.File is a source of p2p/blob, which checks size and digest)
//	HTTPS, no proxy, no address of package closed and none of this machine's interfaces
//
// The operator names hosts in the own network (Config). A URL of such a host may lead to a private address, and so may
// its redirects to another named host. URLs of other hosts may lead to none of them.
//
// A peer is neither a proxy nor a flooder for its buyers:
//
//   - A request is a GET without a body, a cookie, or a header of the buyer's choice. A URL has no user and password. A
//     redirect gets no Referer, as the query of a URL may be a signature.
//   - The content becomes visible only if the buyer knew its SHA-256 before. No compression is undone.
//   - The bytes of a download are bounded by the declared size, and by the disk of the lease. A server must send 64 KiB
//     in 30 seconds. A broken transfer is resumed at its break, at most 8 times.
//   - At most 16 downloads run at a time, 4 for one buyer. A buyer with 16 failed downloads in 10 minutes gets no more
//     until these are over (Client.Admit).
//
// A buyer gets the status of an answer, and no data that distinguishes addresses in this machine's network.
//
// A buyer's client uses the same rules to get a URL's digest and size (Client.Sum), so that a file that no provider
// could read is refused before the job is submitted.
package web
