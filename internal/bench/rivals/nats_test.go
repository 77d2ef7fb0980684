package rivals

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/evlog-go/evlog/evlog"
)

// natsStore is a NATS server in this process, one JetStream stream in files, and a
// client that reaches it without a socket. Durable is the server's sync_interval:
// always; otherwise its default, every two minutes. A record alone is published and
// waited for, many are published one after the other with PublishAsync and their
// acknowledgements waited for at the end, as its documentation advises for
// throughput. It checks a hash of each message that it reads.
type natsStore struct {
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	c      config
}

const (
	natsSubject = "log"
	// natsPending is how many acknowledgements the client lets be outstanding; it is
	// its default.
	natsPending = 4000
)

func openNATS(_ testing.TB, dir string, c config) (store, error) {
	srv, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true, SyncAlways: c.durable,
	})
	if err != nil {
		return nil, err
	}
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		return nil, nats.ErrTimeout
	}
	conn, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(natsPending))
	if err != nil {
		return nil, err
	}
	stream, err := js.CreateOrUpdateStream(background, jetstream.StreamConfig{
		Name: natsSubject, Subjects: []string{natsSubject}, Storage: jetstream.FileStorage, AllowDirect: true,
	})
	return &natsStore{srv, conn, js, stream, c}, err
}

func (s *natsStore) append(records []evlog.Record) error {
	now := time.Now().UnixMilli()
	if len(records) == 1 && s.c.durable {
		_, err := s.js.Publish(background, natsSubject, frame(nil, now, &records[0]))
		return err
	}
	if s.js.PublishAsyncPending()+len(records) > natsPending {
		if err := s.flush(); err != nil {
			return err
		}
	}
	for i := range records {
		if _, err := s.js.PublishAsync(natsSubject, frame(nil, now, &records[i])); err != nil {
			return err
		}
	}
	if s.c.durable {
		return s.flush()
	}
	return nil
}

func (s *natsStore) flush() error {
	select {
	case <-s.js.PublishAsyncComplete():
		return nil
	case <-time.After(time.Minute):
		return nats.ErrTimeout
	}
}

func (s *natsStore) scan(each func(key, value []byte)) error {
	info, err := s.stream.Info(background)
	if err != nil {
		return err
	}
	consumer, err := s.stream.OrderedConsumer(background, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for range info.State.Msgs {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		key, value, err := unframe(m.Data())
		if err != nil {
			return err
		}
		each(key, value)
	}
	return nil
}

func (s *natsStore) get(offset uint64) (key, value []byte, err error) {
	m, err := s.stream.GetMsg(background, offset+1)
	if err != nil {
		return nil, nil, err
	}
	return unframe(m.Data)
}

func (s *natsStore) drop(below uint64) error {
	return s.stream.Purge(background, jetstream.WithPurgeSequence(below+1))
}

func (s *natsStore) close() error {
	s.conn.Close()
	s.server.Shutdown()
	s.server.WaitForShutdown()
	return nil
}

func (s *natsStore) follow(next uint64, seen func()) (stop func(), err error) {
	consumer, err := s.stream.OrderedConsumer(background, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next + 1,
	})
	if err != nil {
		return nil, err
	}
	c, err := consumer.Consume(func(jetstream.Msg) { seen() })
	if err != nil {
		return nil, err
	}
	return func() { c.Stop(); <-c.Closed() }, nil
}
