package rivals;

import java.io.BufferedReader;
import java.io.InputStreamReader;

/**
 * Logs of the JVM, driven by the benchmarks in Go beside this: one command a line on
 * standard input, answered with "ok" and a number when it is done. See ../programs_test.go.
 *
 * <pre>
 * open DIR
 * append COUNT BATCH VALUE_BYTES SYNC   SYNC is 1 if each batch has to be durable
 * scan COUNT                            the first COUNT records; answers their bytes
 * close
 * </pre>
 */
final class Main {
    /** A log that is open. */
    interface Log {
        /** Appends the records, batch by batch. */
        void append(Records records, int count, int batch, boolean sync) throws Exception;

        /** Reads all of that many records, and returns the sum of the bytes in them. */
        long scan(int count) throws Exception;

        void close() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Log log = null;
        Records records = new Records(0);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            long answer = 0;
            switch (words[0]) {
                case "open":
                    log = open(args[0], words[1]);
                    break;
                case "append":
                    int valueBytes = Integer.parseInt(words[3]);
                    if (records.values[0].length != valueBytes) {
                        records = new Records(valueBytes);
                    }
                    log.append(records, Integer.parseInt(words[1]), Integer.parseInt(words[2]), words[4].equals("1"));
                    break;
                case "scan":
                    answer = log.scan(Integer.parseInt(words[1]));
                    break;
                case "close":
                    log.close();
                    log = null;
                    break;
                default:
                    throw new IllegalArgumentException("unknown command " + line);
            }
            System.out.println("ok " + answer);
        }
        System.exit(0); // threads of theirs may be left
    }

    private static Log open(String system, String dir) throws Exception {
        switch (system) {
            case "chronicle":
                return new ChronicleLog(dir);
            case "kafka":
                return new KafkaLog(dir);
            default:
                throw new IllegalArgumentException("unknown system " + system);
        }
    }

    private Main() {}
}
