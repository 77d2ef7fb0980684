package readme

import (
	"context"
	"database/sql"
	"fmt"

	sqlite "modernc.org/sqlite"

	"github.com/evlog-go/evlog/evlog"
	"github.com/evlog-go/evlog/sqlbridge/sqldriver"
)

func queryLog() error {
	// region: sqldriver
	db, err := sql.Open("evlog", "events") // fails if there is no log
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query(`SELECT key, count(*), max(time) FROM log
		WHERE time >= '2026-09-20' AND iif(json_valid(value), value ->> '$.kind') = 'login' GROUP BY key`)
	// end
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key, last string
		var n int
		if err := rows.Scan(&key, &n, &last); err != nil {
			return err
		}
		fmt.Println(key, n)
	}
	return rows.Err()
}

func insertIntoLog() error {
	// region: sqlinsert
	db, err := sql.Open("evlog", "events?mode=rw") // the log's one writer
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	r, err := tx.Exec(`INSERT INTO log (key, value) VALUES ('ann', '{"kind":"login"}')`)
	if err != nil {
		return err
	}
	offset, err := r.LastInsertId()
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil { // one batch, one sync: durable, or an error
		return err
	}
	// end
	fmt.Println("offset", offset)
	return nil
}

func attachLog(ctx context.Context) error {
	// region: sqlattach
	connector, err := sqlite.NewConnector("app.sqlite")
	if err != nil {
		return err
	}
	connector, err = sqldriver.AttachConnector(ctx, connector, "events", "events")
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	rows, err := db.Query(`SELECT city, count(*) FROM events JOIN user ON user.name = events.key GROUP BY city`)
	// end
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var city string
		var n int
		if err := rows.Scan(&city, &n); err != nil {
			return err
		}
		fmt.Println(city, n)
	}
	return rows.Err()
}

func Example_sqlOverTheLog() {
	ctx := context.Background()
	inTemp(func() error {
		log, err := evlog.Open(ctx, "events", nil)
		if err != nil {
			return err
		}
		if err := log.Close(); err != nil {
			return err
		}
		app, err := sql.Open("sqlite", "app.sqlite")
		if err != nil {
			return err
		}
		defer app.Close()
		if _, err := app.Exec(`CREATE TABLE user (name TEXT, city TEXT); INSERT INTO user VALUES ('ann', 'Oslo')`); err != nil {
			return err
		}
		if err := insertIntoLog(); err != nil {
			return err
		}
		if err := queryLog(); err != nil {
			return err
		}
		return attachLog(ctx)
	})
	// Output:
	// offset 0
	// ann 1
	// Oslo 1
}
