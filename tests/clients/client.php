<?php
// usage: client.php SOCKET QUEUE TEXTS.json — enqueues each text twice (json and f32), waits, prints two lines of hex floats.
$connection = new Redis();
$connection->connect($argv[1]);
$prefix = 'sluice:{' . $argv[2] . '}:';
foreach (json_decode(file_get_contents($argv[3]), false, 512, JSON_THROW_ON_ERROR) as $text) {
    foreach (['json', 'f32'] as $encoding) {
        $id = $connection->xAdd($prefix . 'requests', '*', ['text' => $text, 'encoding' => $encoding, 'notify' => '1']);
        if (!$connection->blPop([$prefix . 'wake:' . $id], 30)) {
            fwrite(STDERR, "no wake token\n");
            exit(1);
        }
        $reply = $connection->hGetAll($prefix . 'reply:' . $id);
        if ($reply['status'] !== 'done') {
            fwrite(STDERR, var_export($reply, true));
            exit(1);
        }
        $floats = $encoding === 'json' ? json_decode($reply['embedding'], false, 512, JSON_THROW_ON_ERROR)
                                       : array_values(unpack('g*', $reply['embedding']));
        if (count($floats) !== json_decode($reply['info'], true)['dim']) {
            fwrite(STDERR, "wrong length\n");
            exit(1);
        }
        echo bin2hex(pack('g*', ...$floats)), "\n";
    }
}
