// Package match selects providers for an order: feasible → rank → select, over an immutable snapshot of offers and
// quotes.
//
// Feasible drops offers that cannot serve the order, each with its reason. Rank scores the others by the buyer's
// weights and keeps the best. The score is a weighted mean of price, reputation, distance, region, stake and proven
// work for a base unit of price. Work scores one half at the median of the classes that the order takes. Select gives
// ranks to providers, with a small quota for newcomers, and lists spares. A match is only a proposal: the provider
// alone decides over its own units. SelectCluster does so for ranks that must be near to one another, by the
// coordinates of their offers.
//
// Within one class offers are sorted by price, so the ceiling splits the list by one binary search. A match over
// 100,000 offers takes a few milliseconds on one core and allocates only its result. An order for a family goes through
// the list of each of its classes; nothing is held twice.
package match
