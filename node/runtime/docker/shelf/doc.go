// Package shelf keeps the images of a container engine that were pulled for orders: it notes their use, makes room for
// pulls by the removal of those that were used longest ago, and lets one pull of an image go on at a time.
//
// The store of the images has all that outlives the peer; the shelf itself has only the plans of pulls under way. It
// needs the store alone, and never removes an image that is not on the shelf.
package shelf
