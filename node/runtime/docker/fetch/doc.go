// Package fetch reads container images from registries on behalf of strangers, or from the parts that their buyer's
// peer has, and writes them as archives that container engines load.
//
// A stranger chooses the image's name, and thus the address of its registry and all further references. The address of
// every socket is therefore checked after names are resolved:
//
//	image name ──▶ registry ──▶ token realm (401) ──▶ redirects, at most 5 ──▶ layers
//	               └──────────────── one transport ────────────────┘
//	               HTTPS, no proxy, no address of package closed and none of this machine's interfaces
//
// The operator names registries in the own network (New). Such a registry may use plain HTTP and a closed address, and
// its references may lead to another named registry. References of other registries may lead to none of them.
//
// Manifest, platform, configuration, packed and unpacked layers are checked against their digests before the engine
// receives the archive's last part; without it the engine stores nothing. Layers are unpacked here once to count their
// size: a file counts its size and 4 KiB. All received bytes are counted too. Layers outside the registry ("foreign"
// ones) are refused.
//
// A broken transfer is resumed at its break.
//
// The files of a pushed image (OpenParts) pass the same checks. They must be exactly the files of its manifest, with
// their sizes.
//
// The layers of an image of a registry may come through another source too (Via). Their digests decide then as well.
//
// A buyer's peer uses the same rules to get the digest of a tag (Resolve): its API's users may name any registry too.
package fetch
