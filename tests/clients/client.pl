# usage: client.pl SOCKET QUEUE TEXTS.json — enqueues each text twice (json and f32), waits, prints two lines of hex floats.
use strict;
use warnings;
use JSON::PP;
use Redis;

my ($socket, $queue, $path) = @ARGV;
my $connection = Redis->new(sock => $socket);
my $prefix = "sluice:{$queue}:";
open(my $file, '<:raw', $path) or die "$path: $!";
my $texts = decode_json(do { local $/; <$file> });
for my $text (@$texts) {
    utf8::encode($text);    # this library sends bytes
    for my $encoding ('json', 'f32') {
        my $id = $connection->xadd("${prefix}requests", '*', text => $text, encoding => $encoding, notify => 1);
        $connection->blpop("${prefix}wake:$id", 30) or die "no wake token";
        my %reply = $connection->hgetall("${prefix}reply:$id");
        $reply{status} eq 'done' or die join ' ', %reply;
        my @floats = $encoding eq 'json' ? @{ decode_json($reply{embedding}) } : unpack('f<*', $reply{embedding});
        @floats == decode_json($reply{info})->{dim} or die "wrong length";
        print unpack('H*', pack('f<*', @floats)), "\n";
    }
}
