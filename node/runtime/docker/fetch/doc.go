// Package fetch reads container images from registries on behalf of strangers and writes them as archives that
// container engines load.
//
// The name of an image is an address of a stranger's choice, and so is all that its registry refers to. Every socket is
// therefore looked at when its address is known, after names are resolved:
//
//	image name ──▶ registry ──▶ token realm (401) ──▶ redirects, at most 5 ──▶ layers
//	               └──────────────── one transport ────────────────┘
//	               HTTPS, no proxy, no address of package closed and none of this machine's interfaces
//
// Registries in the operator's own network are for the operator to name (New). An image of such a registry may come
// over plain HTTP and from a closed address, and so may its references to another named one; an image of any other
// registry leads to none of them.
//
// Everything is held to its digest before an engine is given the archive's last part, without which it keeps nothing:
// manifest, platform, configuration, packed and unpacked layers. Layers are unpacked here once, to count their size: a
// file takes its size and 4 KiB. All received bytes are counted too. Layers that a manifest has lie elsewhere
// ("foreign" ones) are refused.
//
// A broken transfer is resumed at its break.
//
// A buyer's peer asks the same way for the digest that a tag has (Resolve): keys of its API may name any registry too.
package fetch
