// Package ociruntime is a wrapper of runc that gives a lease's container a user namespace with its own range of users,
// and a writable root. The engine starts it under the name that its operator chooses in daemon.json:
//
//	"runtimes": {"starling": {"path": "/usr/local/bin/starling-guard", "runtimeArgs": ["oci-runtime"]}}
//
// It is a filter. It changes the configuration of a container that is created with a layer, a directory that the peer
// made in the volume of the lease and mounts at LayerPath, and then becomes runc with the same arguments. All other
// commands and containers are passed to runc unchanged.
//
//	engine's overlay (root.path)            layer, in the volume of the lease, owned by the first user of its range
//	  │ each directory of it                  │ upper, work
//	  ▼ as an idmapped mount                  ▼
//	  0, 1, 2 …  ───────── overlay ────────── writes
//	                         │
//	                         ▼ root.path, in a mount namespace of this process and the container
//
// Files of the image thus belong to the image's users, without a copy. The layer and the image's volumes take room only
// in the volume of the lease. New files of the container belong to users of the range on this machine.
//
// The container's /etc/hosts, /etc/hostname and /etc/resolv.conf are copies in the layer, except in members of
// clusters, where the peer changes them. Its /run is the image's, mounted on itself: otherwise root of the container
// could replace it, and with it the guard's directory.
//
// Every bind mount is cloned with its flags before runc sees it. A user namespace cannot enter directories that only
// root may enter, as those of the engine and the peer, and cannot change flags of mounts from outside.
//
// If a container joins another's network, this process enters that network first, and so does runc, and mounts its
// sysfs. Both need root of this machine.
//
// The user namespace belongs to the first user of the range. Kernel limits per namespace owner, such as inotify
// instances, thus apply to each lease separately.
//
// It requires Linux 5.19, an overlay below the engine (overlay2, or the overlayfs snapshotter) on a file system with
// idmapped mounts, and runc 1.1. Engines with SELinux labels are refused. GPUs were not tested: NVIDIA's prestart hook
// would run as root of this machine in the new mount namespace; newer hooks run in the user namespace.
//
// Its input is a configuration of the engine, whose users are root here anyway. It refuses a layer with an owner that
// is not the first of a range, a link, and a directory with content: the peer makes no such layer.
package ociruntime
