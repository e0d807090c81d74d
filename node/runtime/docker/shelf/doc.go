// Package shelf manages the images of a container engine that were pulled for orders. It records their use, removes the
// least recently used ones to make room for pulls, and allows one pull of an image at a time.
//
// All persistent state is in the store of the images; the shelf itself has only the plans of current pulls. It never
// removes an image that is not on the shelf.
package shelf
