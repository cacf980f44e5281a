package main

import "fmt"

// scene is one use of a lock.
type scene struct {
	name, title string
	values      map[string]int // that the database begins with
	verdict     func(*database) verdict
}

// verdict is how a scene ended.
type verdict struct {
	text  string
	wrong bool
}

const (
	workers = 4 // of each scene
	items   = 5
	users   = 12
	packets = 8
	orders  = 3
	points  = 10 // for an order
)

var scenes = []scene{
	{
		name: "flashsale", title: fmt.Sprintf("Flash sale: %d items, %d users who click twice", items, users),
		values: map[string]int{"stock": items},
		verdict: func(db *database) verdict {
			sold, twice := 0, 0
			for u := range users {
				n := db.count(fmt.Sprintf("sold one to user %d", u))
				sold += n
				if n > 1 {
					twice++
				}
			}
			return verdict{fmt.Sprintf("%d of %d items sold, %d users have two", sold, items, twice), sold > items || twice > 0}
		},
	},
	{
		name: "packets", title: fmt.Sprintf("Red packets: %d packets, 24 grabs", packets),
		verdict: func(db *database) verdict {
			grabbed, twice := 0, 0
			for p := range packets {
				n := db.count(fmt.Sprintf("grabbed packet %d", p))
				grabbed += min(n, 1)
				if n > 1 {
					twice++
				}
			}
			return verdict{fmt.Sprintf("%d of %d packets grabbed, %d of them more than once", grabbed, packets, twice), grabbed != packets || twice > 0}
		},
	},
	{
		name: "migration", title: "Migration: four nodes start with a new version",
		verdict: func(db *database) verdict {
			n := db.count("migrated to version 1")
			return verdict{fmt.Sprintf("migrated %d times, the schema has version %d", n, db.get("version")), n != 1 || db.get("version") != 1}
		},
	},
	{
		name: "payments", title: fmt.Sprintf("Payments: %d orders, each reported as paid to %d nodes", orders, workers),
		verdict: func(db *database) verdict {
			booked := 0
			for o := range orders {
				booked += db.count(fmt.Sprintf("order %d paid, %d points for customer %d", o, points, o))
			}
			return verdict{fmt.Sprintf("%d orders booked %d times", orders, booked), booked != orders}
		},
	},
}
