// Package ociruntime stands in for runc, so that a container of a lease has a user namespace with a range of users that
// no other lease has, and a root that it may write. The engine starts it under the name that its operator gives it in
// daemon.json:
//
//	"runtimes": {"starling": {"path": "/usr/local/bin/starling-guard", "runtimeArgs": ["oci-runtime"]}}
//
// It is a filter. It changes the configuration of a container that is created with a layer, a directory that the peer
// made in the volume of the lease and mounts at LayerPath, and then becomes runc with the same arguments. Every other
// command and container is runc's alone.
//
//	engine's overlay (root.path)            layer, in the volume of the lease, owned by the first user of its range
//	  │ each directory of it                  │ upper, work
//	  ▼ as an idmapped mount                  ▼
//	  0, 1, 2 …  ───────── overlay ────────── writes
//	                         │
//	                         ▼ root.path, in a mount namespace of this process and the container
//
// Files of the image thus belong to the users that the image names, without a copy. The layer and the volumes of the
// image, which are parts of it, take room in the volume of the lease and nowhere else. Files that the container makes
// belong on this machine to users of the range.
//
// The container's /etc/hosts, /etc/hostname and /etc/resolv.conf are copies in the layer, except in members of
// clusters, where the peer changes them. Its /run is the image's, mounted on itself: root of the container could
// otherwise rename it, with the guard's directory in it, and have another one in its place.
//
// Every bind mount is cloned with its flags before runc sees it. A user namespace may neither pass the directories of
// the engine and the peer that only root may pass, nor change a flag of a mount that came from outside.
//
// For a container that joins another's network, this process, and so runc, enters that network before, and mounts its
// sysfs: both need root of this machine.
//
// The user namespace belongs to the first user of the range. What the kernel bounds for the owner of a namespace, as
// instances of inotify, no lease thus takes from another, or from root.
//
// It takes Linux 5.19, an overlay below the engine (overlay2, or the overlayfs snapshotter) on a file system with
// idmapped mounts, and runc 1.1. Engines with SELinux labels are refused. GPUs were not tried: NVIDIA's prestart hook
// would run as root of this machine in the mount namespace that is made here; newer ones run in the user namespace.
//
// Its input is a configuration of the engine, whose users are root here anyway. It refuses a layer that the peer does
// not make: an owner that is not the first of a range, a link, a directory with content.
package ociruntime
